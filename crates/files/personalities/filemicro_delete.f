# Deletes the files of a tree, and ends when none is left.
set mode quit firstdone
set $dir=/tmp
set $nfiles=50000
set $meandirwidth=100
set $meanfilesize=1k
set $filesize=randvar(type=gamma,mean=$meanfilesize,gamma=1500)
set $nthreads=16
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nfiles,dirwidth=$meandirwidth,prealloc=100
define process name=micro1,instances=1 {
  thread name=micro1,memsize=10m,instances=$nthreads {
    flowop deletefile name=delete1,filesetname=bigfileset
    flowop opslimit name=limit1
  }
}
run
