# Creates files and writes each whole, and ends after 5,000.
set mode quit firstdone
set $dir=/tmp
set $nfiles=5000
set $meandirwidth=1024
set $meanfilesize=1k
set $filesize=randvar(type=gamma,mean=$meanfilesize,gamma=1500)
set $nthreads=1
set $iosize=1k
set $count=5000
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nfiles,dirwidth=$meandirwidth,prealloc=0
define process name=micro1,instances=1 {
  thread name=micro1,memsize=10m,instances=$nthreads {
    flowop createfile name=create1,filesetname=bigfileset,fd=1
    flowop writewholefile name=write1,fd=1,iosize=$iosize
    flowop closefile name=close1,fd=1
    flowop finishoncount name=finish1,value=$count,target=close1
  }
}
run
