# Creates and writes the files of an empty tree, and ends when all exist.
set mode quit firstdone
set $dir=/tmp
set $nfiles=50000
set $meandirwidth=100
set $meanfilesize=16k
set $filesize=randvar(type=gamma,mean=$meanfilesize,gamma=1500)
set $nthreads=16
set $iosize=1m
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nfiles,dirwidth=$meandirwidth,prealloc=0
define process name=creator1,instances=1 {
  thread name=creator1,memsize=10m,instances=$nthreads {
    flowop createfile name=create1,filesetname=bigfileset,fd=1
    flowop writewholefile name=write1,fd=1,iosize=$iosize
    flowop closefile name=close1,fd=1
  }
}
run
