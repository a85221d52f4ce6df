# Copies a tree of files into an empty tree, and ends when it is full.
set mode quit firstdone
set $dir=/tmp
set $nfiles=1000
set $meandirwidth=20
set $meanfilesize=16k
set $filesize=randvar(type=gamma,mean=$meanfilesize,gamma=1500)
set $nthreads=1
set $iosize=1m
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nfiles,dirwidth=$meandirwidth,prealloc=100
define fileset name=destfiles,path=$dir,size=$filesize,entries=$nfiles,dirwidth=$meandirwidth,prealloc=0
define process name=copier1,instances=1 {
  thread name=copier1,memsize=10m,instances=$nthreads {
    flowop openfile name=open1,filesetname=bigfileset,fd=1
    flowop readwholefile name=read1,fd=1,iosize=$iosize
    flowop createfile name=create1,filesetname=destfiles,fd=2
    flowop writewholefile name=write1,fd=2,srcfd=1,iosize=$iosize
    flowop closefile name=close1,fd=1
    flowop closefile name=close2,fd=2
  }
}
run
